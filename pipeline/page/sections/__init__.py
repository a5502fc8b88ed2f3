"""The sections of the page, a file each: `section_of(run) -> Section`."""
