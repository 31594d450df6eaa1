-- Erasures after which the file has not yet been written anew: old bytes may be left in unused parts of its pages.

create table erasure (seq integer primary key) strict;
