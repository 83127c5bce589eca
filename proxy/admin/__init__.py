"""Administration: teams, keys, budgets and reports, for the admin API and for the command line alike."""

from proxy.admin.operations import Desk, Reply

__all__ = ["Desk", "Reply"]
