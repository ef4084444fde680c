"""Staging: one host of each kind that production has, with the same group data."""

rtx_pro_6000 = ["stage-1.example.com"]
h100 = ["stage-2.example.com"]
