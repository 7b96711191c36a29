//! Each source format to findings. Pure.
