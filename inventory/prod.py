"""Production. Which host runs what, and with which differences, is group data: group_data/GROUP.py.

Hosts that are not there yet can be checked too: their group declares the hardware (`gpu = "…"`).
"""

# groups by hardware; a group named like the file (`prod`) is made by pyinfra and would beat these: it has no data
rtx_pro_6000 = [
    ("gpu-1.example.com", {"rack": "a"}),
    ("gpu-2.example.com", {"rack": "a"}),
    ("gpu-3.example.com", {"rack": "b"}),
    ("gpu-4.example.com", {"rack": "b"}),
]
h100 = [(f"h100-{i}.example.com", {"rack": "c"}) for i in range(1, 9)]
