"""Work over whole data sets: conversion, verification, seek indices."""
