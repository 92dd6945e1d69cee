"""The record: the facts of a run, and what is made of them, the ledger, tables and pictures."""
