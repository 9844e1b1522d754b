# The operator's image: a stage that builds the wheel, and a small one that runs it as nobody in particular.
FROM python:3.13-slim-bookworm AS wheel
WORKDIR /src
RUN python -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir 'build==1.3.0'
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY operator ./operator
RUN /opt/build/bin/python -m build --wheel --outdir /dist \
 && python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir -c constraints.txt /dist/*.whl \
 && /opt/venv/bin/pip uninstall --yes pip

FROM python:3.13-slim-bookworm
LABEL org.opencontainers.image.title="accelerator-rollout" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=wheel /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["python", "-m", "accelerator_rollout"]
CMD ["run"]
