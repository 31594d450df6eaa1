"""The stores of the event log: SQLite files and PostgreSQL databases, with one schema and one set of questions."""
