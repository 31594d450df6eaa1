"""Data sets and tables: downloads, MovieLens, the Open Bandit Dataset, and your own files.

Polars loads only when a file or a table is read.
"""

from alphafair.data.downloads import DATASETS as DATASETS
from alphafair.data.downloads import Dataset as Dataset
from alphafair.data.downloads import DownloadError as DownloadError
from alphafair.data.downloads import download as download
from alphafair.data.downloads import folder as folder
from alphafair.data.downloads import get as get
from alphafair.data.downloads import path_of as path_of
