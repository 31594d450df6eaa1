-- What ties a decision to its context's label and to its id: see integrity.py. Null for decisions made before this step,
-- and once their context was erased.

alter table decision add column checksum integer;
