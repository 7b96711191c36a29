//! Frontier, meters, selection, admission, partition, walls; simulation under a virtual clock. Pure.
