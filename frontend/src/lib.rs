//! Parapet: coded inference frontend.
