-- Always empty: rows are inserted and deleted in one transaction, to find out whether the disk has space for them.

create table scratch (filler blob not null) strict;
