//! An embedded, multi-writer, ACID storage manager with durable commits at no cost in throughput.
