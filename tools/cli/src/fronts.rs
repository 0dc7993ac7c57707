//! The list of fronts: the one place outside their crates that knows them by name.

use std::sync::Arc;

use weir_access::Listen;
use weir_control::Tree;
use weir_control::config::Metrics;
use weir_front::FrontKind;
pub(crate) use weir_metrics::Server as MetricsServer;

/// Every kind of front there is, in the order in which a daemon starts, opens and stops them.
pub(crate) fn kinds() -> Vec<&'static FrontKind> {
    vec![&weir_fuse::KIND, &weir_front_nbd::KIND]
}

/// Opens the addresses at which the figures are shown.
pub(crate) fn open_metrics(
    stated: &Metrics,
    tree: &Arc<Tree>,
) -> Result<Vec<MetricsServer>, String> {
    let addresses = stated.addresses().map_err(|error| error.to_string())?;
    let open = |listen: &Listen| MetricsServer::open(listen, &stated.hosts, Arc::clone(tree));
    let opened: Result<_, _> = addresses.iter().map(open).collect();
    opened.map_err(|error: weir_metrics::ListenError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_fronts_is_what_the_tables_make() {
        let written = include_str!("../../../docs/fronts.md");
        let page = weir_front::page(&kinds());
        assert!(written == page, "docs/fronts.md is out of date: cargo xtask tunables");
    }

    #[test]
    fn no_two_fronts_share_a_name_and_none_is_a_key_of_the_file_or_a_folder_of_linux() {
        let mut names: Vec<&str> = kinds().iter().map(|kind| kind.name).collect();
        names.extend(["kernel_cmdline", "disk", "export", "group", "pool", "metrics"]);
        names.extend(weir_control::tree::FIXED);
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{names:?}");
    }
}
