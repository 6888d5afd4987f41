//! Kinds of log record, declared in one place.

/// Declares the kinds of record of one layer: an enum whose numbers are on disk, with `from_number` and `name`.
///
/// ```
/// foreshore_space::record_kinds! {
///     /// Kinds of a layer.
///     pub enum Kind {
///         /// One thing.
///         One = 1 => "one",
///     }
/// }
/// assert_eq!(Kind::from_number(1).map(Kind::name), Some("one"));
/// assert!(Kind::from_number(2).is_none());
/// ```
#[macro_export]
macro_rules! record_kinds {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$kind_doc:meta])* $kind:ident = $number:literal => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$kind_doc])* $kind = $number,)+
        }

        impl $name {
            /// The kind with that number on disk.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$kind),)+
                    _ => None,
                }
            }

            /// The name that tools print.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $text,)+
                }
            }
        }
    };
}

record_kinds! {
    /// Kinds of record of the space manager.
    pub enum SpaceKind {
        /// A new map page. Pages: the map page of the preceding region (absent for the first region), the new one
        /// (initialised). Empty body.
        MapInit = 1 => "map-init",
        /// The last map page goes, and its region with it. Pages: the map page of the preceding region. Empty body.
        MapDrop = 2 => "map-drop",
        /// Rebuilds a damaged map page, with all pages before an end allocated. Page: the map page (initialised).
        /// Body: the end as a page id, 8.
        MapRebuild = 3 => "map-rebuild",
        /// A damaged page is quarantined. Page: that one. Body: the number of its flaw, 2.
        Quarantine = 4 => "quarantine",
    }
}

const _: () = assert!(*foreshore_buffer::format::SPACE_KINDS.start() == SpaceKind::MapInit as u8);
