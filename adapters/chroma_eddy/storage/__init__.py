"""The Chroma database: clients, locks, backups, collections and pages of rows."""
