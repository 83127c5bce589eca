"""``/ui``: pages that show sessions in their layers, and manage teams, keys and budgets.

The pages have no data of their own: they show the answers of the admin API. See the README beside this file.
"""
