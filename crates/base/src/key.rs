//! Order-preserving encoding of keys, and encoding of values.
