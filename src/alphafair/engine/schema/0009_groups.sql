-- Settings of policies under their present names: see `with_present_names` in migrations.py. Snapshots hold memory as it
-- was laid out before. They are a short cut only: without them the log is folded from its beginning, once.

update change set body = with_present_names(body) where kind = 'create';
delete from snapshot;
delete from snapshot_piece;
