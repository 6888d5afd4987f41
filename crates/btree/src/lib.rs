//! B+-trees of Foreshore.
