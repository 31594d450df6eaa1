-- Erasures after which the file has not been rewritten: old bytes may be left in unused parts of its pages.

create table erasure (seq integer primary key) strict;
