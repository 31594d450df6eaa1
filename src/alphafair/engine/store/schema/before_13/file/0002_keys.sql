-- Keys of the service: the hash of every secret, never the secret itself. Not part of the event log.

create table api_key (
    id text primary key,
    name text not null,
    role text not null check (role in ('read', 'write', 'admin')),
    hash blob not null,               -- SHA-256
    created_at integer not null,
    revoked_at integer                -- null while the key is valid
) strict;
