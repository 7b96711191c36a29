//! Git: gix for everything local, the git program for everything remote.
