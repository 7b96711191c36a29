//! Findings to a validated plan. Pure.
