"""The schema of the SQLite files, version by version. ``PRAGMA user_version`` holds the version of a file."""

import sqlite3
from collections.abc import Sequence

# Each entry migrates a file to the next version. Entries are never edited.
STORE = (
    """
    CREATE TABLE spend (
        exchange_id TEXT PRIMARY KEY,
        team TEXT NOT NULL,
        usd REAL NOT NULL,
        at REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX spend_at ON spend (at);
    CREATE TABLE total (
        team TEXT PRIMARY KEY,
        usd REAL NOT NULL
    ) WITHOUT ROWID;
    """,
    # Money in nano-dollars. A team's total becomes the counter of its budget over all time.
    """
    CREATE TABLE entry (
        exchange_id TEXT PRIMARY KEY,
        at REAL NOT NULL,
        team TEXT NOT NULL,
        key_id TEXT NOT NULL DEFAULT '',
        user TEXT NOT NULL DEFAULT '',
        model TEXT NOT NULL DEFAULT '',
        mode TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        status INTEGER NOT NULL DEFAULT 0,
        ending TEXT NOT NULL DEFAULT '',
        read_tokens INTEGER NOT NULL DEFAULT 0,
        write_5m_tokens INTEGER NOT NULL DEFAULT 0,
        write_1h_tokens INTEGER NOT NULL DEFAULT 0,
        plain_tokens INTEGER NOT NULL DEFAULT 0,
        output_tokens INTEGER NOT NULL DEFAULT 0,
        cost INTEGER NOT NULL DEFAULT 0,
        saved INTEGER NOT NULL DEFAULT 0,
        latency_ms INTEGER NOT NULL DEFAULT 0,
        estimated INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    CREATE INDEX entry_at ON entry (at, exchange_id);
    CREATE TABLE counter (
        team TEXT NOT NULL,
        account TEXT NOT NULL,
        spent INTEGER NOT NULL DEFAULT 0,
        reserved INTEGER NOT NULL DEFAULT 0,
        expected INTEGER NOT NULL DEFAULT 0,
        forget_at REAL,
        PRIMARY KEY (team, account)
    ) WITHOUT ROWID;
    CREATE INDEX counter_forget_at ON counter (forget_at) WHERE forget_at IS NOT NULL;
    CREATE TABLE hold (
        exchange_id TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        at REAL NOT NULL,
        charges TEXT NOT NULL,
        entry TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX hold_at ON hold (state, at);
    CREATE TABLE claim (
        team TEXT NOT NULL,
        name TEXT NOT NULL,
        forget_at REAL NOT NULL,
        PRIMARY KEY (team, name)
    ) WITHOUT ROWID;
    CREATE TABLE directory (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    CREATE TABLE directory_version (version INTEGER NOT NULL);
    INSERT INTO directory_version VALUES (0);
    CREATE TABLE blob (
        scope TEXT NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL,
        forget_at REAL NOT NULL,
        PRIMARY KEY (scope, name)
    );
    CREATE INDEX blob_forget_at ON blob (forget_at);
    INSERT INTO counter (team, account, spent)
        SELECT team, 'b:total:-:total', CAST(round(usd * 1000000000) AS INTEGER) FROM total;
    INSERT INTO entry (exchange_id, at, team, status, cost)
        SELECT exchange_id, at, team, 200, CAST(round(usd * 1000000000) AS INTEGER) FROM spend;
    DROP TABLE spend;
    DROP TABLE total;
    """,
    # The owners of objects in the provider's account.
    """
    CREATE TABLE object (
        team TEXT NOT NULL,
        name TEXT NOT NULL,
        family TEXT NOT NULL,
        server TEXT NOT NULL,
        deployment TEXT NOT NULL,
        forget_at REAL NOT NULL,
        bill TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (team, name)
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX object_server ON object (server, name);
    CREATE INDEX object_forget_at ON object (team, forget_at);
    CREATE INDEX object_end ON object (forget_at);
    """,
    # Facts of the file about itself (proxy.core.epoch).
    """
    CREATE TABLE fact (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
    # The cause of a cache break, and its cost.
    """
    ALTER TABLE entry ADD COLUMN break_kind TEXT NOT NULL DEFAULT '';
    ALTER TABLE entry ADD COLUMN break_cost INTEGER NOT NULL DEFAULT 0;
    """,
    # The cause that the provider itself reports.
    """
    ALTER TABLE entry ADD COLUMN provider_cause TEXT NOT NULL DEFAULT '';
    """,
)

SPOOL = (
    """
    CREATE TABLE pending (
        number INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        call TEXT NOT NULL
    );
    """,
    # The exchange of the call: the end of an exchange replaces its intent.
    """
    ALTER TABLE pending ADD COLUMN exchange TEXT NOT NULL DEFAULT '';
    CREATE INDEX pending_exchange ON pending (exchange);
    """,
)


def migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Migrate the file to the last version. If two processes try at once, the second finds it done."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(migrations):
            raise sqlite3.DatabaseError(f"the file has version {version}, this program knows {len(migrations)}")
        for statements in migrations[version:]:
            for statement in statements.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
