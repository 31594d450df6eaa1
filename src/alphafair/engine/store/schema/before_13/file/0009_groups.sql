-- Settings of policies under their present names: see `with_present_names` in migrations.py. Snapshots have the memory
-- layout of older versions, so they are removed: the event log is replayed from its beginning, once.

update change set body = with_present_names(body) where kind = 'create';
delete from snapshot;
delete from snapshot_piece;
