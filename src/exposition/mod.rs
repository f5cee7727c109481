//! Prometheus text: read, merge, write. Pure: no I/O, clock or async; uses no other room.
