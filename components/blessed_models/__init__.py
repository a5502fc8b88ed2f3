"""The latest blessed model where the platform has no resolver: records beside the artifacts."""
