//! What messages say.

mod messages;
