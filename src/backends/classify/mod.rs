//! The outcome rules: one observation of a backend failure in, one [`crate::model::Classification`] out.
