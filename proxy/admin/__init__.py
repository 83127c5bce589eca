"""Administration: teams, keys, budgets and reports, for the admin API and for the command line alike."""

from proxy.admin.operations import AdminResponse, AdminService

__all__ = ["AdminService", "AdminResponse"]
