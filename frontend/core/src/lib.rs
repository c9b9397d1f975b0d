//! Parapet: sans-IO core of the frontend: coding groups, dispatch, redundancy strategies.
