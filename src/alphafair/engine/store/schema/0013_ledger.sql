-- The event log of every experiment, in a file and in a database. Rows are only added, apart from the labels of erased
-- contexts. `position` numbers the events of an experiment from 1 on, without gaps; `event` is a key of the row, unique in
-- the store: in a file the order of commits, in a database the key of the experiment and the position. Times are
-- microseconds since 1970, UTC. Words in braces have a meaning per store: see `dialect.py`.

create table experiment (
    key {int} primary key,            -- part of every checksum: it never changes
    name text not null unique,
    position {int} not null,          -- of its last event
    at {int} not null                 -- of its last event
) {strict};

create table change (
    {event},
    kind text not null,
    body text not null,               -- JSON
    state {bytes},                    -- of a policy, where the change has one
    at {int} not null,
    by text                           -- the name of a key, or of a user; null: not recorded
) {strict};

create table context (
    experiment {int} not null,
    number {int} not null,
    label text,                       -- null once erased
    primary key (experiment, number),
    unique (experiment, label)
) {keyed};

create table decision (
    {event},
    id text not null,
    context {int} not null,
    arm {int} not null,
    propensity {real} not null,
    state_version {int} not null,     -- the last position applied to memory when the arm was drawn
    policy_version {int} not null,    -- the position of the last change at that time
    deferred {int} not null,
    available {bytes},                -- a bit per arm, where not all arms were available
    probabilities {bytes},            -- under full information: a float64 per arm
    at {int} not null,
    checksum {int},                   -- see `checksum` in verify.py; null for decisions of old versions, or erased
    unique (id, experiment)
) {strict};

create table activation (
    {event},
    decision {int} not null unique,   -- its event
    at {int} not null
) {strict};

create table reward (
    {event},
    decision {int} not null unique,
    reward {real},                    -- null: closed without one, or a value per arm
    source text not null,             -- client, default, expired, lapsed, rollback
    rewards {bytes},                  -- under full information: a float64 per arm
    at {int} not null
) {strict};

create table late_reward (            -- arrived after the decision was closed; no policy learns from it
    {event},
    decision {int} not null unique,
    reward {real},
    rewards {bytes},
    at {int} not null
) {strict};

create table snapshot (               -- saves time when a store is opened; the log alone leads to the same state
    experiment {int} not null,
    position {int} not null,
    code_version text not null,
    tally text not null,              -- JSON
    state {bytes} not null,           -- its last piece
    summary {int},                    -- how many of the last bytes are a summary; null: an older version kept none
    node text not null,               -- the process that wrote it, whose pieces belong to it; empty in a file
    primary key (experiment, position)
) {strict};

create table snapshot_piece (         -- of a state too large for one transaction; without a snapshot never read
    experiment {int} not null,
    position {int} not null,
    number {int} not null,            -- from 0 on
    bytes {bytes} not null,
    node text not null,
    primary key (experiment, position, node, number)
) {strict};

create table api_key (                -- of the service: hashes of secrets, never the secrets; no part of the event log
    id text primary key,
    name text not null,
    role text not null check (role in ('metrics', 'read', 'write', 'log', 'admin')),
    experiments text,                 -- JSON, a list of names; null: all
    hash {bytes} not null,            -- SHA-256
    created_at {int} not null,
    created_by text,
    expires_at {int},                 -- null: never
    revoked_at {int},                 -- null while the key was not revoked
    revoked_by text,
    epoch {int} not null default 0    -- how often its browsers were signed out
) {strict};

-- sqlite only

create table mark (                   -- the events of the positions 1, 256, 512, ... of every experiment
    experiment {int} not null,
    block {int} not null,
    event {int} not null,
    primary key (experiment, block)
) {keyed};

create table erasure (event {int} primary key) {strict};  -- after which the file has not been rewritten

create table scratch (filler {bytes} not null) {strict};  -- always empty: finds out whether the disk has space
