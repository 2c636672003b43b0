//! options
