"""Looks everywhere for masters, other submissions and what people keep at home."""

CELL = """
import os

def attack(x):
    found = []
    for folder, folders, files in os.walk("/"):
        folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/usr/share", "/usr/lib")]
        if folder.endswith("site-packages"):
            folders[:] = ["course_lib"]
        found += [name for name in files if name.endswith(".ipynb") or "canary" in name or name == "04_wanda.py"]
    for place in ("/home", "/etc/shadow", "/etc/passwd", "/var", "/run", "/sys", "/mnt", "/srv", "/opt", "/boot"):
        if os.path.isfile(place) or os.path.isdir(place) and len(os.listdir(place)) > 1:
            found.append(place)  # one entry is the way to the course or to Python, where these lie there
    return tuple(found)
"""
STATUS = "ran"
VALUE = ()
