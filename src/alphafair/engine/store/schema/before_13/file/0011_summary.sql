-- What happened over time is saved after the state: this many of its last bytes. Null in snapshots of older versions, whose
-- summary is counted once from the event log when the file is opened.

alter table snapshot add column summary integer;
