-- Ties a decision to its context, label and id: see `checksum` in verify.py. Null for decisions made before this
-- migration, and once their context was erased.

alter table decision add column checksum integer;
