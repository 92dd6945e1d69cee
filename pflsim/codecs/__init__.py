"""The codecs that `[codec]` can name, one file each; what they have to offer stands in `pflsim.coding.codec`."""
