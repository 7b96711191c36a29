//! Looks ahead on expected times before the first start.

use super::Scheduler;

pub(super) fn tune(_scheduler: &mut Scheduler) {}
