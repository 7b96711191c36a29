//! Where pull requests, issues and comments live: the forge trait and its implementations.
