"""Administration: teams, keys, budgets and reports, for the admin API and for the command line alike."""

from proxy.administration.desk import Desk, Reply

__all__ = ["Desk", "Reply"]
