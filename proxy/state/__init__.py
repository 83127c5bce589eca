"""Where state is kept that must outlive a request: the ledger of what teams spent, in memory or in SQLite."""
