"""PostgreSQL: tables, sessions, and one module of verbs per aggregate. Nothing here commits."""
