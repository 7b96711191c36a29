//! One `next-step` cycle: observe, grant, work, land, report.
