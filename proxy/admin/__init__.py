"""Manages teams, keys and budgets, and reports spend, for the admin API and the command line.

A method, a path, a query and a JSON body come in. JSON or CSV goes out, or a refusal. Nothing here depends on an HTTP
server.
"""

from proxy.admin.operations import AdminService

__all__ = ["AdminService"]
