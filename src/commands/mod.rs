//! Comment commands: what a comment asks for, read from its CommonMark text only. Pure.
