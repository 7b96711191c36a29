//! The Actions runtime: inputs, outputs, masks, groups, annotations, step summary.
