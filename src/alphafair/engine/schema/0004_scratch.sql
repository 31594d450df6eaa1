-- Always empty: what is written here is taken back in the same transaction, to find out whether there is room for it.

create table scratch (filler blob not null) strict;
