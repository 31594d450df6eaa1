-- A large state is written in pieces, each in its own transaction. The row in `snapshot` has the last piece and is written
-- last; a state that fits into one piece has no other. Pieces without that row are never read.

create table snapshot_piece (
    experiment integer not null,
    seq integer not null,
    number integer not null,          -- from 0 on
    bytes blob not null,
    primary key (experiment, seq, number)
) strict;
