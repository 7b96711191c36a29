//! Child processes with walls: own group killed whole, clean environment, deadlines, output caps.
