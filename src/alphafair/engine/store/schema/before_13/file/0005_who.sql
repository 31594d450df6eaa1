-- Who made a change. Keys of five roles, which may expire and be limited to some experiments; SQLite cannot alter a
-- check constraint, so the table is created again.

alter table change add column by text;   -- the name of a key, or of a user of this machine; null: not recorded

create table new_api_key (
    id text primary key,
    name text not null,
    role text not null check (role in ('metrics', 'read', 'write', 'log', 'admin')),
    experiments text,                 -- JSON, a list of names; null: all
    hash blob not null,               -- SHA-256
    created_at integer not null,
    created_by text,
    expires_at integer,               -- null: never
    revoked_at integer,               -- null while the key was not revoked
    revoked_by text
) strict;

insert into new_api_key (id, name, role, hash, created_at, revoked_at)
    select id, name, role, hash, created_at, revoked_at from api_key;
drop table api_key;
alter table new_api_key rename to api_key;
